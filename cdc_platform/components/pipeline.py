"""The YAML component that all kinds of pipelines share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Self

import dagster as dg
from pydantic import BaseModel

from cdc_platform.assets.upstream import Upstream
from cdc_platform.components.documents import check_integers, check_templates, has_safe_document
from cdc_platform.components.schemas import Group, fields_of, make_group
from cdc_platform.errors import SettingError
from cdc_platform.model.base.declared_settings import Described, read_settings, settings_of
from cdc_platform.model.stream.source_capabilities import SourceSettings
from cdc_platform.pipeline.opened.pipeline_settings import PipelineSettings
from cdc_platform.sensors import RunSettings

COPYING: Final = frozenset({"initial_copy", "copy_chunk_rows", "copy_s", "max_window_s"})
"""Settings of pipelines whose source can be copied, and is read in windows of source time."""


@dataclass(frozen=True)
class DagsterSettings:
    """Settings of a pipeline for Dagster only."""

    runs: Annotated[RunSettings, Described("How Dagster runs the pipeline.")] = field(
        default_factory=RunSettings
    )


@dataclass(frozen=True)
class PipelineComponent(dg.Component, dg.Resolvable, ABC):
    """One source feeding one folder of a lake.

    Args:
        attributes: the settings of the YAML with their templates filled in, except the group `runs`.
        runs: how Dagster runs the pipeline.
    """

    source_class: ClassVar[type[SourceSettings]]
    """Declares the settings of the source."""
    has_safe_document: ClassVar[Callable[[dg.ComponentLoadContext], bool]]
    left_out: ClassVar[frozenset[str]] = COPYING
    """Settings of pipelines that have no effect with this kind of source."""

    attributes: Mapping[str, Any]
    runs: RunSettings

    @classmethod
    @cache
    def group(cls) -> type[Group]:
        """Return the settings that the YAML may contain."""
        pipeline = fields_of(PipelineSettings, {"source": cls.source_class})
        declarations = {name: kind for name, kind in pipeline.items() if name not in cls.left_out}
        return make_group(cls.__name__, {**declarations, **fields_of(DagsterSettings)})

    @classmethod
    def model(cls) -> type[BaseModel]:
        """Return the schema of the YAML, in which any value may be a template."""
        model_class: type[BaseModel] = cls.group().model()
        return model_class

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Make Dagster check the documents of the new kind of pipeline before it evaluates them."""
        super().__init_subclass__(**kwargs)
        # Dagster only looks at the class's own members, not at inherited ones.
        cls.has_safe_document = staticmethod(has_safe_document)

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> Self:
        """Return the component with its templates filled in, for this platform and for Dagster.

        Raises:
            SettingError: a template is more than an environment variable, or results in an integer that is
                too large; or a value cannot be used.
        """
        check_templates(model.model_dump())
        attributes = cls.group().resolve_from_model(context, model).model_dump(exclude_unset=True)
        check_integers(attributes)
        entries = {name: attributes.pop(name) for name in settings_of(DagsterSettings) if name in attributes}
        return cls(attributes, read_settings(DagsterSettings, entries).runs)

    @property
    def name(self) -> str:
        """Name of the pipeline."""
        return str(self.attributes["name"])

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the pipeline's assets, checks, job and sensor."""
        return self.definitions(context.path if context.path.is_dir() else context.path.parent)

    def definitions(self, folder: Path) -> dg.Definitions:
        """Return the assets, checks, job and sensor for a YAML file in a folder."""
        # Imported here because reading settings needs no Spark, which keeps `cdc-platform status` fast.
        from cdc_platform.components.building import build_pipeline

        settings = self.to_settings(folder)
        return build_pipeline(settings, self.runs, self.upstream(settings))

    def to_settings(self, folder: Path) -> PipelineSettings:
        """Return the settings of the pipeline; paths are relative to the folder of the YAML file.

        Raises:
            SettingError: a value is out of range; the error names it by its keys in the file.
        """
        try:
            source = self.source_settings(self.attributes["source"], folder)
        except SettingError as error:
            raise SettingError(f"source.{error.setting}", error.problem) from None
        return read_settings(PipelineSettings, {**self.attributes, "source": source}, folder)

    def source_settings(self, entries: Mapping[str, Any], folder: Path) -> SourceSettings:
        """Return the settings of the source from the group `source` of the YAML.

        Raises:
            SettingError: a value is out of range; the error names it by its keys in that group.
        """
        return self.source_class.from_fields(entries, folder)

    @abstractmethod
    def upstream(self, settings: PipelineSettings) -> Upstream:
        """Return further assets and checks of the source to show.

        Raises:
            SetupError: the settings ask for them, and a library that they need is missing.
        """
