"""What measures tiny_llm and shows how it computes: `tiny-llm bench`, `demo`, `visualize`, and profilers."""
