//! Reading a page: its sections, tables and blocks.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

/// A file of the work tree.
pub(crate) fn file(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).join(name)
}

/// The text of a file of the work tree.
pub(crate) fn text(name: &str) -> anyhow::Result<String> {
    let path = file(name);
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

pub(crate) fn yaml(text: &str) -> anyhow::Result<Value> {
    serde_saphyr::from_str(text).with_context(|| text.to_owned())
}

/// A heading and what stands below it, up to the next one.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) heading: String,
    pub(crate) body: String,
}

pub(crate) fn sections(page: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = vec![];
    let mut in_block = false;
    for line in page.lines() {
        in_block ^= line.starts_with("```");
        if !in_block && line.starts_with('#') {
            sections.push(Section {
                heading: line.trim_start_matches('#').trim().to_owned(),
                body: String::new(),
            });
        } else if let Some(section) = sections.last_mut() {
            section.body.push_str(line);
            section.body.push('\n');
        }
    }
    sections
}

/// The blocks of a language.
pub(crate) fn blocks(text: &str, language: &str) -> Vec<String> {
    let open = format!("```{language}");
    let mut blocks = vec![];
    let mut lines = text.lines();
    while lines.by_ref().any(|line| line == open) {
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        blocks.push(block.join("\n"));
    }
    blocks
}

/// What stands between backticks.
pub(crate) fn quoted(text: &str) -> Vec<String> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// A table's column names, and its rows.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    /// A row's cell by its column's name.
    pub(crate) fn cell<'a>(&self, row: &'a [String], column: &str) -> anyhow::Result<&'a str> {
        let index = self.columns.iter().position(|name| name == column);
        let cell = index.and_then(|index| row.get(index));
        let cell = cell.filter(|cell| !cell.is_empty());
        cell.map(String::as_str)
            .with_context(|| format!("expected something under `{column}`, got {row:?}"))
    }
}

pub(crate) fn tables(text: &str) -> Vec<Table> {
    let mut tables: Vec<Table> = vec![];
    let mut inside = false;
    for line in text.lines() {
        let Some(cells) = line
            .strip_prefix("| ")
            .and_then(|line| line.strip_suffix(" |"))
        else {
            inside &= line.starts_with("|--");
            continue;
        };
        let cells = cells
            .split(" | ")
            .map(|cell| cell.trim().to_owned())
            .collect();
        match tables.last_mut().filter(|_| inside) {
            Some(table) => table.rows.push(cells),
            None => tables.push(Table {
                columns: cells,
                rows: vec![],
            }),
        }
        inside = true;
    }
    tables
}
