"""Programs to run and look at: `python -m demos` lists them."""
