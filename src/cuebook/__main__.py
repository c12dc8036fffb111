"""`python -m cuebook`."""

from cuebook.surfaces.cli import main

if __name__ == "__main__":
    main()
