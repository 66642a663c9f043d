"""Programs that use several devices in other ways than by moving ops."""
