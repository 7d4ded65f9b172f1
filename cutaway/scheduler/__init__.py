"""Who computes what in the next step: pure, values in, values out."""
