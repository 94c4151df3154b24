"""Draw the loss curve of a training run.

python -m training.curve curve.json curve.png        (needs matplotlib)
"""

import json
import sys
from pathlib import Path


def draw(source: Path, picture: Path) -> None:
    """Draw the picture if matplotlib is installed; the numbers are in the JSON file in any case."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    entries = json.loads(source.read_text())
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    axes.plot([e["step"] for e in entries], [e["loss"] for e in entries], color="black", label="training")
    measured = [e for e in entries if "held_out" in e]
    for kind in measured[0]["held_out"] if measured else []:
        axes.plot(
            [e["step"] for e in measured],
            [e["held_out"][kind] for e in measured],
            marker=".",
            label=f"held out: {kind}",
        )
    axes.set(
        xlabel="step", ylabel="cross-entropy per token", yscale="log", title="Training of the embedded model"
    )
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
