"""What is measured: kernels of tiny_llm and other libraries, and whole models in worker processes."""
