//! The HTML page and the Markdown file.

use super::fake;
use report::render;

#[test]
#[ignore = "writes the documents to the directory that LOOK names, to be looked at in a browser"]
fn look() {
    let directory = std::path::PathBuf::from(std::env::var("LOOK").expect("LOOK names a directory"));
    for (path, bytes) in render(&fake::run(5)).0 {
        let path = directory.join(path);
        std::fs::create_dir_all(path.parent().expect("inside the directory")).expect("created");
        std::fs::write(path, bytes).expect("written");
    }
}
