"""What leaves the library in other formats: ONNX graphs."""

from xlnet.export.onnx import ExportedGraph, export_onnx

__all__ = ["ExportedGraph", "export_onnx"]
