"""What is computed: the rows of each benchmark, and how much work a row is."""
