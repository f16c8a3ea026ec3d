"""Words that all commands share."""


def counted(number: int, noun: str) -> str:
    """`1 sim`, `2 sims`, `1,200 kernels`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
