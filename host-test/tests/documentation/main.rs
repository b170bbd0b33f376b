//! The pages of docs/ say what the code does.

mod answers;
mod bounds;
mod fields;
mod page;
mod reference;
mod schema;
