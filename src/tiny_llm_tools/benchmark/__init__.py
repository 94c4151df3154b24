"""The core of all benchmarks: the clock, model backends, requests, rates and pictures.

`tiny-llm bench` runs on it alone. `pdm bench` adds the contestants, cases and records of `benches/`, which
only a source tree has.
"""
