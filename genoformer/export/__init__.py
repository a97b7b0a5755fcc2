"""Values of a store as files of other formats."""

from genoformer.export.channels import Channel, choose_channels
from genoformer.export.files import Exported, export_track
from genoformer.export.formats import TRACK_FORMATS, Calling
from genoformer.export.selection import Selection

__all__ = ["TRACK_FORMATS", "Calling", "Channel", "Exported", "Selection", "choose_channels", "export_track"]
