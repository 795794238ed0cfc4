"""What optimizers hold, and what of it goes to the device."""
