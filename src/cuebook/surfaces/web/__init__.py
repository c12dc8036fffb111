"""The web app: pages, a JSON API and live streams over one service. Nothing of it is imported before it is served."""
