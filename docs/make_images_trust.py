"""Draw the pictures of "How much to trust the error bars": python docs/make_images_trust.py."""

from pathlib import Path

from relvec.papers import Context
from relvec.papers.rq05 import bands_figure, families_figure

IMAGES = Path(__file__).parent / "images"


def main():
    for name, experiment, draw in (
        ("trust_families", "RQ05-figure-1", families_figure),
        ("trust_bands", "RQ05-figure-2", bands_figure),
    ):
        draw(Context(experiment, 1)).savefig(IMAGES / f"{name}.png", dpi=90)


if __name__ == "__main__":
    main()
