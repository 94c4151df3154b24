"""Entry point of the training run. Worker processes import this file, too; only the parent must import MLX."""

if __name__ == "__main__":
    from training.train import main

    main()
