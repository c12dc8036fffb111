"""The operating system: processes, executables and folders."""
