"""Content keys: what must change them does, what must not does not."""

from hypothesis import given
from hypothesis import strategies as st

from tools.kube.cache import content_key, copy_files, files_of
from tools.kube.images import our_recipes, pause_recipe


def tree(root):
    (root / "core").mkdir(parents=True)
    (root / "core/a.py").write_text("a")
    (root / "core/b.py").write_text("b")
    return root


def key(root):
    return content_key(["x"], files_of(root, ["core"]), root)


def test_a_key_follows_content_name_and_mode(tmp_path):
    root = tree(tmp_path / "one")
    seen = {key(root)}
    (root / "core/a.py").write_text("A")
    seen.add(key(root))
    (root / "core/a.py").rename(root / "core/c.py")
    seen.add(key(root))
    (root / "core/b.py").chmod(0o755)
    seen.add(key(root))
    assert len(seen) == 4


def test_caches_and_the_place_of_the_checkout_do_not_matter(tmp_path):
    one, two = tree(tmp_path / "one"), tree(tmp_path / "two")
    (two / "core/__pycache__").mkdir()
    (two / "core/__pycache__/a.pyc").write_text("x")
    (two / "core/.hidden").write_text("x")
    assert key(one) == key(two)


@given(st.lists(st.text(), min_size=2, max_size=4))
def test_where_one_text_ends_and_the_next_begins_matters(texts):
    joined = ["".join(texts)]
    assert content_key(texts) != content_key(joined)


def test_copies_hold_exactly_the_keyed_files(tmp_path):
    root = tree(tmp_path / "one")
    files = files_of(root, ["core/a.py"])
    copy_files(files, root, tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy").rglob("*.py")] == ["a.py"]


def test_a_changed_source_file_gives_our_images_new_names(tmp_path):
    root = tree(tmp_path)
    for name in ("operator", "extender", "device-plugin", "runtime", "requirements"):
        (root / name).mkdir()
    for name in (
        "Dockerfile",
        *(f"requirements/{room}.txt" for room in ("build", "sbom", "operator", "extender", "device-plugin")),
    ):
        (root / name).write_text("")
    before = [recipe.image for recipe in our_recipes(root)]
    (root / "core/a.py").write_text("changed")
    after = [recipe.image for recipe in our_recipes(root)]
    assert not set(before) & set(after)
    assert [image.partition(":")[0] for image in before] == [image.partition(":")[0] for image in after]
    assert pause_recipe().image == pause_recipe().image
