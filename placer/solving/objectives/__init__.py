"""Objectives in seconds: the throughput and the step time."""
