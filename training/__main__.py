"""Entry of the training run; the worker processes import this file too, so MLX is imported by the parent alone."""

if __name__ == "__main__":
    from training.train import main

    main()
