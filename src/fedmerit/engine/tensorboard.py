"""The sink for TensorBoard: its own event files, by its own writer, without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from time import time
from typing import Any

from fedmerit.engine.logged import LoggedRound, LoggedRun
from fedmerit.engine.sink_files import free_path


class TensorBoardSink:
    """LOGDIR/RUN: a scalar per measure and client, a text for the settings and for each event."""

    keeps_files = False

    def __init__(self, where: str, run: LoggedRun, place: str | None) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._run = run
        folder = Path(place) if place else free_path(Path(where).expanduser().absolute(), run.name)
        self.place = str(folder)
        self._last = max(_steps(folder), default=0)
        self._writer = EventFileWriter(self.place)
        if place is None:
            self._add(0, [_text("settings", [f"{key} = {value}" for key, value in run.settings.items()])])

    def last_round(self) -> int:
        """The last step of its event files; every round is flushed."""
        return self._last

    def log(self, one: LoggedRound) -> None:
        """One event with all scalars of the round."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in self._run.scalars(one).items()]
        names = self._run.names
        told = [f"{'' if e.client is None else names[e.client]} {e.kind}: {e.text}".strip() for e in one.events]
        self._add(one.index, [*values, *([_text("events", told)] if told else [])])
        self._last = one.index

    def _add(self, step: int, values: Sequence[Any]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._writer.add_event(Event(wall_time=time(), step=step, summary=Summary(value=values)))
        self._writer.flush()

    def keep(self, files: Sequence[Path]) -> None:
        """Event files hold no others."""

    def close(self) -> None:
        """End the writer's thread."""
        self._writer.close()


def _steps(folder: Path) -> Iterator[int]:
    """The steps of rounds that are in the folder's event files already."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    for path in sorted(folder.glob("*tfevents*")):
        for event in EventFileLoader(str(path)).Load():
            if event.HasField("summary") and event.step:
                yield int(event.step)


def _text(tag: str, lines: Sequence[str]) -> Any:
    """Lines for TensorBoard's text page, as plain text: Markdown in them is not ours."""
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING

    shown = "\n".join(f"    {line}" for line in lines)  # four blanks: as it stands
    shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
    tensor = TensorProto(dtype=DT_STRING, string_val=[shown.encode()], tensor_shape=shape)
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    return Summary.Value(tag=f"{tag}/text_summary", metadata=metadata, tensor=tensor)
