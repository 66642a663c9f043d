"""Fifteen training programs as people publish them: the examples of keras.io and the tutorials of
TensorFlow by subject, written anew and small."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import generative_programs as generative
import sequence_programs as sequences
import vision_programs as vision

BATCH, STEPS, EPOCHS = 16, 4, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A compiled model as ``build`` gives it, and the arguments of ``fit`` for so many examples,
    ``needs_data`` where the model does not say what a batch is."""

    name: str
    build: Callable[[], Any]
    data: Callable[[int], tuple[Any, ...]]
    needs_data: bool = True


FIFTEEN = (
    Program(
        name="image classification",
        build=vision.image_classification,
        data=vision.image_data,
        needs_data=False,
    ),
    Program(
        name="text classification",
        build=sequences.text_classification,
        data=sequences.reviews,
        needs_data=False,
    ),
    Program(name="translation", build=sequences.translation, data=sequences.sentences),
    Program(name="GAN", build=generative.gan, data=generative.pictures),
    Program(name="VAE", build=generative.vae, data=generative.pictures),
    Program(name="contrastive", build=generative.contrastive, data=generative.contrastive_data),
    Program(name="diffusion", build=generative.diffusion, data=generative.pictures),
    Program(name="detection", build=vision.detection, data=vision.detection_data),
    Program(name="recommender", build=sequences.recommender, data=sequences.ratings),
    Program(
        name="time series", build=sequences.time_series, data=sequences.weather, needs_data=False
    ),
    Program(name="graph", build=sequences.graph, data=sequences.papers),
    Program(name="reinforcement", build=generative.reinforcement, data=generative.memories),
    Program(
        name="segmentation",
        build=vision.segmentation,
        data=vision.segmentation_data,
        needs_data=False,
    ),
    Program(name="distillation", build=vision.distillation, data=vision.digit_data),
    Program(name="fine-tuning", build=vision.fine_tuning, data=vision.image_data, needs_data=False),
)
