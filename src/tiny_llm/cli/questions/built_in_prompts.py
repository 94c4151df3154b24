"""The built-in prompts of `batch`: with short and long answers, so requests start and end all the time."""

PROMPTS = (
    "What is FlashAttention?",
    "What is 17 + 25?",
    "Tell me a short story about a brave fox.",
    "What is the opposite of early?",
    "What is a KV cache?",
    "What is 9 * 8?",
    "Tell me a short story about a lost kite.",
    "Hello! How are you?",
    "Why does attention divide by the square root of the head size?",
    "What day comes after Friday?",
    "Tell me a short story about a small boat.",
    "What is 84 - 37?",
    "What is continuous batching?",
    "Who are you?",
    "Tell me a short story about an old clock.",
    "What is a token?",
)
