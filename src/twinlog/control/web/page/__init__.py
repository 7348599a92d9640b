"""The page for people, at `/page/`: files that a browser takes as they are. There is no build step,
no library, and nothing from elsewhere; it reads `/api/v1` as any client does.

`assets` says which file is at which path. Begin to read with `files/page.js`: `view.js` makes
elements and words, each screen has a file of its own.
"""
