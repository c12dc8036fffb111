"""The network of a confined process: a proxy that connects it to certain hosts, and the ways to reach that proxy.

The process has no route of its own. In bubblewrap, its network namespace contains nothing but the proxy's port; in
Landlock, every socket that it opens is a connection to the proxy.
"""
