"""Images resized, cropped, recoloured."""
