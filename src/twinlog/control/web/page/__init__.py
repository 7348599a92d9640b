"""The web page at `/page/`: static files without a build step, libraries or external resources. It
reads `/api/v1` like any other client.

`assets` maps paths to files. Begin to read with `files/page.js`; `view.js` creates elements and
formats numbers; each screen has its own file.
"""
