"""`python -m elmo_plugin` is `elmo`."""

from elmo_plugin.commands.main import main

if __name__ == "__main__":
    main()
