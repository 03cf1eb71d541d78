"""Parts of the package import only parts of lower levels."""

import ast
from pathlib import Path
from typing import Iterator, Tuple

import elmo_plugin

PACKAGE = Path(__file__).parents[1] / "elmo_plugin"

# From the lowest level to the highest; parts of one level do not import each other.
CORE = [
    ("elmo_plugin.errors", "elmo_plugin.cpus"),
    ("elmo_plugin.compat.environment", "elmo_plugin.compat.training_process", "elmo_plugin.files"),
    ("elmo_plugin.arguments",),
    ("elmo_plugin.bilm",),
    ("elmo_plugin.modules.scalar_mix", "elmo_plugin.modules.elmo_archives"),
    ("elmo_plugin.modules.elmo",),
    ("elmo_plugin.embedding",),
    ("elmo_plugin.integrations",),
    ("elmo_plugin.serving.options",),
    ("elmo_plugin.serving.requests",),
]
PLUGIN = [
    ("elmo_plugin.compat.archive_configs",),
    ("elmo_plugin.compat.patches",),
    ("elmo_plugin.compat.archives",),
    ("elmo_plugin.modules.elmo_token_embedder",),
    ("elmo_plugin.modules.text_encoder",),
    ("elmo_plugin.modules.model_mixes",),
    ("elmo_plugin.pretraining", "elmo_plugin.tasks"),
    ("elmo_plugin.report",),
    ("elmo_plugin.serving.answers",),
    ("elmo_plugin.serving.app",),
    ("elmo_plugin.serving.server",),
    ("elmo_plugin.commands",),
    ("elmo_plugin.plugin", "elmo_plugin.__main__"),
    ("elmo_plugin.predictors",),
]
LEVELS = {part: level for level, parts in enumerate(CORE + PLUGIN) for part in parts}
# They name classes of lower levels, and import them on first use.
NAMES_ONLY = ("elmo_plugin", "elmo_plugin.modules", "elmo_plugin.serving")

# Of the core: they import AllenNLP inside functions that only its users call.
FOR_USERS_OF_ALLENNLP = ("elmo_plugin.modules.elmo",)


def is_core(module: str) -> bool:
    return part_of(module) in [part for parts in CORE for part in parts]


def part_of(module: str) -> str:
    parts = [part for part in LEVELS if f"{module}.".startswith(f"{part}.")]
    assert len(parts) == 1, f"{module} has no level: add it to this test"
    return parts[0]


def imports_of(path: Path, at_the_top: bool) -> Iterator[str]:
    """
    Modules that a file imports: as soon as it is imported itself, or also later, inside functions. Imports
    for annotations only (`if TYPE_CHECKING`) are left out: they are never run.
    """
    tree = ast.parse(path.read_text("utf-8"))
    never_run = {
        id(statement)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
    }
    for statement in tree.body if at_the_top else ast.walk(tree):
        if id(statement) in never_run:
            continue
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            assert statement.module is not None
            folder = PACKAGE.parent / statement.module.replace(".", "/")
            for alias in statement.names:
                if (folder / alias.name).is_dir() or (folder / f"{alias.name}.py").exists():
                    yield f"{statement.module}.{alias.name}"
                elif statement.module == PACKAGE.name and alias.name in elmo_plugin._MODULE_OF:
                    yield elmo_plugin._MODULE_OF[alias.name]
                else:
                    yield statement.module


def imports_in_the_package(at_the_top: bool = False) -> Iterator[Tuple[str, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        names = path.relative_to(PACKAGE.parent).with_suffix("").parts
        module = ".".join(names[:-1] if names[-1] == "__init__" else names)
        if module not in NAMES_ONLY:
            yield from ((module, imported) for imported in imports_of(path, at_the_top))


def test_imports_go_down_only() -> None:
    """Also inside functions, except those of commands: they import `plugin`, which imports a command."""
    checked = 0
    of_others = [
        pair for pair in imports_in_the_package() if part_of(pair[0]) != "elmo_plugin.commands"
    ]
    for module, imported in [*imports_in_the_package(at_the_top=True), *of_others]:
        if imported.startswith("elmo_plugin.") and imported not in NAMES_ONLY:
            part, imported_part = part_of(module), part_of(imported)
            assert part == imported_part or LEVELS[part] > LEVELS[imported_part], (module, imported)
            checked += 1
    assert checked > 200


def test_the_core_imports_no_allennlp() -> None:
    for at_the_top in (True, False):
        for module, imported in imports_in_the_package(at_the_top):
            if is_core(module) and (at_the_top or module not in FOR_USERS_OF_ALLENNLP):
                assert not f"{imported}.".startswith("allennlp."), module


def test_commands_import_the_plugin_storey_only_when_they_run() -> None:
    """So that `elmo` is quick, and runs the core's commands without AllenNLP."""
    for module, imported in imports_in_the_package(at_the_top=True):
        is_command = part_of(module) == "elmo_plugin.commands"
        if is_command and module != "elmo_plugin.commands.allennlp_elmo":
            assert not f"{imported}.".startswith("allennlp."), module
            if imported.startswith("elmo_plugin.") and imported not in NAMES_ONLY:
                is_of_commands = part_of(imported) == "elmo_plugin.commands"
                assert is_core(imported) or is_of_commands, (module, imported)


def test_a_task_imports_no_other_task() -> None:
    fixtures = PACKAGE.parent / "fixtures"
    tasks = {path.parent.parent.name for path in fixtures.glob("*/tiny/experiment_elmo.jsonnet")}
    assert len(tasks) >= 6
    for module, imported in imports_in_the_package():
        of_both = [name.split(".")[2:3] for name in (module, imported)]
        of_tasks = [of[0] for of in of_both if of and of[0] in tasks]
        assert len(set(of_tasks)) <= 1, (module, imported)
