"""Model folders: weights, manifests and metadata, read with validation and written atomically."""
