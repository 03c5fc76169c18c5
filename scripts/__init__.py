"""Programs that prepare what the package bundles."""
