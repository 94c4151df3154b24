"""Code of the course alone: the stages of its weeks, and attention to read before the kernels."""
