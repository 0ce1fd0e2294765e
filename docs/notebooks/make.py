"""Run the notebooks of this folder anew and keep their outputs: ``make notebook``."""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

for path in sorted(Path(__file__).parent.glob("*.ipynb")):
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, kernel_name="python3").execute()
    for cell in notebook.cells:
        cell.metadata.clear()  # times of execution
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    nbformat.write(notebook, path)
    print(f"{path.name}: {path.stat().st_size // 1024} KB")
