"""`python -m cascade.serve`: the local server with its settings from the environment."""

from cascade.serve.server import run

if __name__ == "__main__":
    run()
