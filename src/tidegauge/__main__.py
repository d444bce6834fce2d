"""`python -m tidegauge` is the command `tidegauge`."""

from tidegauge.cli import main

if __name__ == "__main__":
    main()
