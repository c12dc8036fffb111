"""The web app: pages, a JSON API and live streams over one service. It is imported only when it is served."""
