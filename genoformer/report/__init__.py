"""A report: one page of HTML that shows what a store holds, readable anywhere, with nothing fetched from anywhere."""

from genoformer.report.build import ReportSettings, build_report

__all__ = ["ReportSettings", "build_report"]
