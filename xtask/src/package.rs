//! `cargo xtask package` and `release`: what users install. Packs every crate and Python package,
//! and uses the packed files as a user does, outside this repository.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use xshell::{Shell, cmd};

use crate::guide;
use crate::new::{new, patch};
use crate::python::{CHOICE, RELEASE, Set, Venv};
use crate::shell::{answer, files_in, target};
use crate::steps::{Steps, skip};
use crate::workspace::{libraries, main_crate};

/// The oldest glibc that Rust's standard library supports.
const MANYLINUX: &str = "manylinux_2_17";
/// Every package has these;
const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];
/// every crate also has this.
const README: &str = "README.md";
/// Has a program in Rust.
const FIRST_PAGE: &str = "docs/guide/README.md";
const CHANGELOG: &str = "CHANGELOG.md";
/// The heading of its first section, before a release.
const UNRELEASED: &str = "Unreleased";
/// What cargo says of every dry run.
const DRY_RUN: &str = "warning: aborting upload due to dry run";
const UNSET: &str = "`repository` in Cargo.toml is empty: set it before the first upload";

/// A rehearsal of a release; unless it is a dry run, it writes the changelog.
pub(crate) fn release(is_dry: bool) -> Result<()> {
    let (venv, member) = (Venv::ready(&[Set::named("release")?])?, main_crate()?);
    let (sh, version) = (&venv.sh, member.text("version"));
    Steps::run(|steps| {
        steps.step("version", || {
            let tags = answer(cmd!(sh, "git tag --points-at HEAD")).unwrap_or_default();
            let wrong =
                tags.lines().find(|tag| tag.strip_prefix('v').is_some_and(|v| v != version));
            wrong.map_or(Ok(()), |tag| bail!("expected the tag v{version}, found {tag}"))
        });
        steps.step("repository", || match (member.text("repository"), is_dry) {
            ("", true) => skip(UNSET),
            ("", false) => bail!(UNSET),
            _ => Ok(()),
        });
        pack_and_use(&venv, steps)?;
        steps.step("changelog", || {
            let text = sh.read_file(CHANGELOG)?;
            let (_, first) = text.split_once("\n## ").context("no section")?;
            let (title, rest) = first.split_once('\n').unwrap_or((first, ""));
            // A commit that is tagged has the version there.
            let is_right = title == UNRELEASED || title.starts_with(&format!("{version} ("));
            ensure!(
                is_right,
                "{CHANGELOG}: expected the first section {UNRELEASED:?}, found {title:?}"
            );
            println!("{}", rest.split("\n## ").next().unwrap_or_default().trim());
            let date = cmd!(sh, "git log -1 --format=%cs").read()?;
            let released = text.replacen(UNRELEASED, &format!("{version} ({date})"), 1);
            if is_dry { Ok(()) } else { Ok(sh.write_file(CHANGELOG, released)?) }
        });
        Ok(())
    })
}

/// Packs every package, and uses the packed files.
pub(crate) fn run() -> Result<()> {
    let venv = Venv::ready(&[Set::named("release")?])?;
    Steps::run(|steps| pack_and_use(&venv, steps))
}

fn pack_and_use(venv: &Venv, steps: &mut Steps) -> Result<()> {
    // Outside the repository, whose workspace would claim the projects.
    let (sh, scratch) = (&venv.sh, venv.sh.create_temp_dir()?);
    let (scratch, packed) = (scratch.path(), target().join("packages"));
    let (crates, project) = (scratch.join("crates"), scratch.join("my-extension"));
    sh.remove_path(&packed)?;
    sh.create_dir(&packed)?;
    steps.step("pack crates", || pack_crates(sh, &packed, &crates));
    steps.step("pack Python packages", || pack_python(venv, &packed));
    steps.step("use crates", || use_crates(venv, &crates));
    steps.step("use wheels and a new project", || {
        new(&project, &crates, false)?;
        sh.copy_file("Cargo.lock", project.join("Cargo.lock"))?;
        let python = use_python(sh, &scratch.join("wheels"), &files_in(&packed, "whl"))?;
        cmd!(sh, "{python} -m pip install --quiet {project}").run()?;
        cmd!(sh, "{python} -m pip install --quiet pytest").run()?;
        Ok(cmd!(sh, "{python} -m pytest --quiet {project}/tests").run()?)
    });
    steps.step("use sources of Python packages", || {
        use_python(sh, &scratch.join("sources"), &files_in(&packed, "gz")).map(drop)
    });
    Ok(cmd!(sh, "ls -sh {packed}").run()?)
}

/// Packs the crates, and keeps nothing.
pub(crate) fn pack_and_drop(sh: &Shell) -> Result<()> {
    let scratch = sh.create_temp_dir()?;
    pack_crates(sh, scratch.path(), &scratch.path().join("crates"))
}

/// Packs the crates as the index gets them, and unpacks each one into a folder of its name.
fn pack_crates(sh: &Shell, packed: &Path, crates: &Path) -> Result<()> {
    let publish = cmd!(sh, "cargo publish --dry-run --no-verify --allow-dirty --workspace");
    let said = publish.read_stderr()?;
    let mut warnings = said.lines().filter(|line| line.starts_with("warning") && *line != DRY_RUN);
    ensure!(warnings.next().is_none(), "expected no warning of cargo publish, found:\n{said}");
    let libraries = libraries()?;
    let packages = libraries.iter().flat_map(|library| ["--package", library.name()]);
    cmd!(sh, "cargo package --no-verify --allow-dirty --quiet {packages...}").run()?;
    for library in &libraries {
        let (name, version) = (library.name(), library.text("version"));
        let file = packed.join(format!("{name}-{version}.crate"));
        sh.copy_file(target().join("package").join(file.file_name().expect("named")), &file)?;
        let folder = sh.create_dir(crates.join(name))?;
        cmd!(sh, "tar -xzf {file} --strip-components 1 -C {folder}").run()?;
        let missing = LICENCES.iter().chain([&README]).find(|text| !folder.join(text).is_file());
        ensure!(missing.is_none(), "{name} has no {}", missing.unwrap_or(&""));
    }
    Ok(())
}

/// Packs wheels and sources of the Python packages, and checks their metadata as the index does.
fn pack_python(venv: &Venv, packed: &Path) -> Result<()> {
    let (sh, python) = (&venv.sh, venv.python()?);
    // On Linux, zig links with the symbols of an old glibc; maturin fails if others are needed.
    let old_glibc = ["--zig", "--compatibility", MANYLINUX];
    let old_glibc = if cfg!(target_os = "linux") { &old_glibc[..] } else { &[] };
    cmd!(
        sh,
        "python -m maturin build --sdist --profile {RELEASE} --manifest-path python/Cargo.toml
         {old_glibc...} --interpreter {python} --out {packed}"
    )
    .run()?;
    cmd!(sh, "python -m build --outdir {packed} extras/doctor").run()?;
    let files = ["whl", "gz"].map(|extension| files_in(packed, extension)).concat();
    cmd!(sh, "python -m twine check --strict").args(&files).run()?;
    let repository = main_crate()?.text("repository").to_owned();
    for file in &files {
        let kind = if file.extension() == Some("whl".as_ref()) { "zipfile" } else { "tarfile" };
        let list = cmd!(sh, "python -m {kind} --list {file}").read()?;
        let missing = LICENCES.iter().find(|text| !list.contains(*text));
        ensure!(missing.is_none(), "{} has no {}", file.display(), missing.unwrap_or(&""));
        if kind == "tarfile" && !repository.is_empty() {
            let about = cmd!(sh, "tar -xzOf {file} --wildcards */PKG-INFO").read()?;
            ensure!(about.contains(&repository), "{} does not name {repository}", file.display());
        }
    }
    Ok(())
}

/// A Rust project over the packed crates: the guide's first program, all examples in their docs, and each
/// feature alone.
fn use_crates(venv: &Venv, crates: &Path) -> Result<()> {
    let (sh, page) = (&venv.sh, venv.sh.read_file(FIRST_PAGE)?);
    let blocks = guide::blocks(&page);
    let program = blocks.iter().find(|block| block.code.contains("fn main"));
    sh.write_file(crates.join("src/main.rs"), &program.context(FIRST_PAGE)?.code)?;
    let manifest = "[package]\nname = \"user\"\nedition = \"2024\"\n\n[workspace]\nmembers = [\"dlbridge*\"]\n\n\
        [dependencies]\ndlbridge = { version = \"0.1\", features = [\"ndarray-0_17\"] }\nndarray = \"0.17\"\n";
    sh.write_file(
        crates.join("Cargo.toml"),
        manifest.to_owned()
            + &patch(libraries()?.iter().map(|one| (one.name(), crates.join(one.name())))),
    )?;
    sh.copy_file("Cargo.lock", crates.join("Cargo.lock"))?;
    let _crates = sh.push_dir(crates);
    cmd!(sh, "cargo run --offline").run()?;
    venv.embedding(cmd!(sh, "cargo test --doc --workspace --offline")).run()?;
    for library in libraries()? {
        let name = library.name();
        for feature in library.features() {
            let chosen = "--no-default-features --features".split(' ');
            cmd!(sh, "cargo check --quiet --offline --package {name} {chosen...} {feature}")
                .run()?;
        }
    }
    Ok(())
}

/// Installs packed files into a clean environment and uses them; returns its Python.
fn use_python(sh: &Shell, folder: &Path, files: &[PathBuf]) -> Result<PathBuf> {
    let program = sh.var(CHOICE)?;
    cmd!(sh, "{program} -m venv {folder}").run()?;
    let python = folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    cmd!(sh, "{python} -m pip install --quiet numpy {files...}").run()?;
    let page = sh.read_file("python/README.md")?;
    for block in guide::blocks(&page).iter().filter(|block| block.kind == "python") {
        let code = &block.code;
        cmd!(sh, "{python} -c {code}").run()?;
    }
    cmd!(sh, "{python} -m dlpack_doctor --list").ignore_stdout().run()?;
    Ok(python)
}
