"""One model in several processes: how rank 0 starts the others, tells them each step, and misses them."""
