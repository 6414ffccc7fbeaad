"""Command-line arguments of the package: parsers and the plans made from them. Nothing here imports torch or numpy."""
