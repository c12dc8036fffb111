"""The web app: pages, a JSON API and live streams over one service. It is only imported when it is served."""
