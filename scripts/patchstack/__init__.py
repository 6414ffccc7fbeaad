"""The engine of `scripts/patches`: a base tree, a series of patches, and the trees between them.

A tree is a plain dictionary from path to file content. Every verb works on such dictionaries in memory and
hands the result to `swap`, so that nothing on disk is ever half changed. From the bottom: `errors`, `trees`
(files and their hash), `hunks`, `render` and `apply` (the text of a patch), `series` (the folder `patches/`),
`position` (which patches are applied), `fold` (edits into a patch), `quilt` (the folder `.pc/`), `swap`
(writing), `checks` (verify) and `verbs`.
"""
