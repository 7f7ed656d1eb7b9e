"""Tables generated from the frameworks."""
