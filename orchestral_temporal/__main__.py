"""`python -m orchestral_temporal`: the same as `orchestral`."""

from orchestral_temporal.cli.main import main

if __name__ == "__main__":
    main()
