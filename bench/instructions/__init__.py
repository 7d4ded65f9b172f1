"""Instructions that the native kernels execute for fixed work, counted by callgrind: a guard against slower code."""
