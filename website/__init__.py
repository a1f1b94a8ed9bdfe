"""The documentation site: `python -m website` puts its sources together in build/site-source and builds build/site."""
