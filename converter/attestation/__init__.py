"""Say where an output came from, in files beside it, as other tools read and sign it."""
