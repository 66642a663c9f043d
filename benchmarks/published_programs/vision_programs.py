"""Programs about images, as they are published: classes, segments, boxes, what to draw, and what to
start from."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers, ops

SIDE = 32
Arrays = tuple[Any, ...]


def _images(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).random((count, SIDE, SIDE, 3), dtype=np.float32)


def image_classification() -> Any:
    """A small Xception trained from scratch, with its augmentation inside."""
    inputs = keras.Input((SIDE, SIDE, 3))
    x = layers.RandomFlip("horizontal")(inputs)
    x = layers.RandomRotation(0.1)(x)
    x = layers.Rescaling(1.0 / 255)(x)
    x = layers.Conv2D(16, 3, strides=2, padding="same")(x)
    x = layers.BatchNormalization()(x)
    before = x = layers.Activation("relu")(x)
    for size in (32, 48):
        for _ in range(2):
            x = layers.Activation("relu")(x)
            x = layers.SeparableConv2D(size, 3, padding="same")(x)
            x = layers.BatchNormalization()(x)
        x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
        beside = layers.Conv2D(size, 1, strides=2, padding="same")(before)
        before = x = layers.add([x, beside])
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dropout(0.25)(x)
    model = keras.Model(inputs, layers.Dense(1)(x))
    model.compile(
        optimizer=keras.optimizers.Adam(3e-4),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
        metrics=[keras.metrics.BinaryAccuracy(name="acc")],
    )
    return model


def image_data(count: int) -> Arrays:
    """Images and whether each is a cat or a dog."""
    return 255 * _images(count), np.random.default_rng(1).integers(0, 2, count).astype("float32")


def segmentation() -> Any:
    """A U-Net of separable convolutions that names the class of every pixel."""
    inputs = keras.Input((SIDE, SIDE, 3))
    x = layers.Conv2D(16, 3, strides=2, padding="same")(inputs)
    x = layers.BatchNormalization()(x)
    before = x = layers.Activation("relu")(x)
    for filters in (32, 48):
        for _ in range(2):
            x = layers.Activation("relu")(x)
            x = layers.SeparableConv2D(filters, 3, padding="same")(x)
            x = layers.BatchNormalization()(x)
        x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
        before = x = layers.add([x, layers.Conv2D(filters, 1, strides=2, padding="same")(before)])
    for filters in (48, 32, 16):
        x = layers.Activation("relu")(x)
        x = layers.Conv2DTranspose(filters, 3, padding="same")(x)
        x = layers.BatchNormalization()(x)
        x = layers.UpSampling2D(2)(x)
        beside = layers.Conv2D(filters, 1, padding="same")(layers.UpSampling2D(2)(before))
        before = x = layers.add([x, beside])
    model = keras.Model(inputs, layers.Conv2D(3, 3, activation="softmax", padding="same")(x))
    model.compile(optimizer=keras.optimizers.Adam(1e-4), loss="sparse_categorical_crossentropy")
    return model


def segmentation_data(count: int) -> Arrays:
    """Images, and the class of every pixel as a byte."""
    classes = np.random.default_rng(2).integers(0, 3, (count, SIDE, SIDE, 1), dtype=np.uint8)
    return _images(count), classes


ANCHORS, CLASSES = 84, 4
"""Boxes that may be there: one on each cell of three levels; classes of what is in one."""


class RetinaNetLoss(keras.losses.Loss):
    """Focal loss for the classes and a smooth L1 for the boxes, by the boxes that are there."""

    def __init__(self, alpha: float = 0.25, gamma: float = 2.0, delta: float = 1.0) -> None:
        super().__init__(reduction="sum_over_batch_size", name="retina_loss")
        self.alpha, self.gamma, self.delta = alpha, gamma, delta

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """The loss of every image; class -1 is no box, -2 one to be ignored."""
        boxes, labels = y_true[:, :, :4], y_true[:, :, 4]
        classes = ops.one_hot(ops.cast(labels, "int32"), CLASSES, dtype="float32")
        there = ops.cast(ops.greater(labels, -1.0), "float32")
        ignored = ops.cast(ops.equal(labels, -2.0), "float32")
        logits = y_pred[:, :, 4:]
        entropy = ops.binary_crossentropy(classes, logits, from_logits=True)
        likely = ops.sigmoid(logits)
        alpha = ops.where(classes == 1.0, self.alpha, 1.0 - self.alpha)
        right = ops.where(classes == 1.0, likely, 1.0 - likely)
        focal = ops.sum(alpha * ops.power(1.0 - right, self.gamma) * entropy, axis=-1)
        off = ops.abs(boxes - y_pred[:, :, :4])
        smooth = ops.where(off < self.delta, 0.5 * off**2, off - 0.5)
        focal = ops.where(ignored == 1.0, 0.0, focal)
        smooth = ops.where(there == 1.0, ops.sum(smooth, axis=-1), 0.0)
        count = ops.sum(there, axis=-1)
        none = count == 0.0
        count = ops.where(none, 1.0, count)
        focal = ops.where(none, 0.0, ops.sum(focal, axis=-1) / count)
        return focal + ops.where(none, 0.0, ops.sum(smooth, axis=-1) / count)


class FeaturePyramid(layers.Layer):
    """Features of three sizes, each with what the coarser ones know."""

    def __init__(self, backbone: Any) -> None:
        super().__init__(name="FeaturePyramid")
        self.backbone = backbone
        self.laterals = [layers.Conv2D(32, 1, padding="same") for _ in range(3)]
        self.smooth = [layers.Conv2D(32, 3, padding="same") for _ in range(3)]
        self.upsample = layers.UpSampling2D(2)

    def call(self, images: Any, training: bool = False) -> list[Any]:
        """The three feature maps, the finest first."""
        found = self.backbone(images, training=training)
        found = [lateral(each) for lateral, each in zip(self.laterals, found, strict=True)]
        for number in (1, 0):
            found[number] = found[number] + self.upsample(found[number + 1])
        return [smooth(each) for smooth, each in zip(self.smooth, found, strict=True)]


class RetinaNet(keras.Model):
    """Boxes and classes of what is in an image, with heads that all levels share."""

    def __init__(self) -> None:
        super().__init__(name="RetinaNet")
        inputs = keras.Input((SIDE, SIDE, 3))
        x, maps = inputs, []
        for filters in (16, 32, 48, 64):
            x = layers.Conv2D(filters, 3, strides=2, padding="same", use_bias=False)(x)
            x = layers.ReLU()(layers.BatchNormalization()(x))
            maps.append(x)
        self.pyramid = FeaturePyramid(keras.Model(inputs, maps[1:]))
        prior = keras.initializers.Constant(-np.log((1 - 0.01) / 0.01))
        self.class_head = self._head(CLASSES, prior)
        self.box_head = self._head(4, "zeros")

    @staticmethod
    def _head(filters: int, bias: Any) -> Any:
        head = keras.Sequential([keras.Input((None, None, 32))])
        for _ in range(2):
            head.add(layers.Conv2D(32, 3, padding="same"))
            head.add(layers.ReLU())
        head.add(layers.Conv2D(filters, 3, padding="same", bias_initializer=bias))
        return head

    def call(self, image: Any, training: bool = False) -> Any:
        """Boxes and logits of all anchors."""
        boxes, classes = [], []
        for feature in self.pyramid(image, training=training):
            boxes.append(ops.reshape(self.box_head(feature), (-1, self._cells(feature), 4)))
            shape = (-1, self._cells(feature), CLASSES)
            classes.append(ops.reshape(self.class_head(feature), shape))
        return ops.concatenate(
            [ops.concatenate(boxes, axis=1), ops.concatenate(classes, axis=1)], axis=-1
        )

    @staticmethod
    def _cells(feature: Any) -> int:
        return int(feature.shape[1] * feature.shape[2])


def detection() -> Any:
    """RetinaNet, called once as its author does to see it work."""
    model = RetinaNet()
    model(np.zeros((1, SIDE, SIDE, 3), "float32"))
    rates = keras.optimizers.schedules.PiecewiseConstantDecay([5, 10], [1e-3, 5e-3, 1e-2])
    model.compile(
        loss=RetinaNetLoss(), optimizer=keras.optimizers.SGD(learning_rate=rates, momentum=0.9)
    )
    return model


def detection_data(count: int) -> Arrays:
    """Images, and for every anchor the box and its class, few of them there."""
    random = np.random.default_rng(3)
    boxes = random.normal(size=(count, ANCHORS, 4))
    kinds = np.where(random.random((count, ANCHORS, 1)) < 0.1, 1, -1)
    kinds = np.where(random.random(kinds.shape) < 0.05, -2, kinds)
    return _images(count), np.concatenate([boxes, kinds], axis=-1).astype("float32")


def fine_tuning() -> Any:
    """MobileNetV2 whose first hundred layers are frozen, as in the second half of the tutorial."""
    base = keras.applications.MobileNetV2(
        input_shape=(SIDE, SIDE, 3), alpha=0.35, include_top=False, weights=None
    )
    base.trainable = True
    for layer in base.layers[:100]:
        layer.trainable = False
    inputs = keras.Input((SIDE, SIDE, 3))
    x = keras.Sequential([layers.RandomFlip("horizontal"), layers.RandomRotation(0.2)])(inputs)
    x = keras.applications.mobilenet_v2.preprocess_input(x)
    x = base(x, training=False)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dropout(0.2)(x)
    model = keras.Model(inputs, layers.Dense(1, activation="sigmoid")(x))
    model.compile(
        loss=keras.losses.BinaryCrossentropy(),
        optimizer=keras.optimizers.RMSprop(learning_rate=1e-5),
        metrics=[keras.metrics.BinaryAccuracy(threshold=0.5, name="accuracy")],
    )
    return model


class Distiller(keras.Model):
    """A student that learns from a teacher's answers beside the labels."""

    def __init__(self, student: Any, teacher: Any) -> None:
        super().__init__()
        self.teacher, self.student = teacher, student

    def compile(
        self,
        optimizer: Any,
        metrics: Any,
        student_loss_fn: Any,
        distillation_loss_fn: Any,
        alpha: float = 0.1,
        temperature: float = 3.0,
    ) -> None:
        """With what the two losses are, and how the second is weighed and softened."""
        super().compile(optimizer=optimizer, metrics=metrics)
        self.student_loss_fn, self.distillation_loss_fn = student_loss_fn, distillation_loss_fn
        self.alpha, self.temperature = alpha, temperature

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        allow_empty: bool = False,
    ) -> Any:
        """Both losses, weighed."""
        del sample_weight, allow_empty
        soft = ops.softmax(self.teacher(x, training=False) / self.temperature, axis=1)
        learned = ops.softmax(y_pred / self.temperature, axis=1)
        distilled = self.distillation_loss_fn(soft, learned) * (self.temperature**2)
        return self.alpha * self.student_loss_fn(y, y_pred) + (1 - self.alpha) * distilled

    def call(self, x: Any) -> Any:
        """The student's answer."""
        return self.student(x)


def _classifier(filters: tuple[int, int], name: str) -> Any:
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(filters[0], 3, strides=2, padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.MaxPooling2D(2, strides=1, padding="same"),
            layers.Conv2D(filters[1], 3, strides=2, padding="same"),
            layers.Flatten(),
            layers.Dense(10),
        ],
        name=name,
    )


def distillation() -> Any:
    """A small classifier of digits that learns from a larger one."""
    model = Distiller(_classifier((16, 32), "student"), _classifier((64, 96), "teacher"))
    model.compile(
        optimizer=keras.optimizers.Adam(),
        metrics=[keras.metrics.SparseCategoricalAccuracy()],
        student_loss_fn=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        distillation_loss_fn=keras.losses.KLDivergence(),
        alpha=0.1,
        temperature=10,
    )
    return model


def digit_data(count: int) -> Arrays:
    """Pictures of digits, and which they are."""
    random = np.random.default_rng(4)
    return random.random((count, 28, 28, 1), dtype=np.float32), random.integers(0, 10, count)
