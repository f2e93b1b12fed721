//! Plans and model files: texts that are read whole, so that a drive or an image named by mistake is not.

use std::fs::{self, File};
use std::io::{Error, ErrorKind, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use stripewise_sim::models::{Model, ModelError, Problem};

/// No text is longer: the longest that is built in has some 20 KiB.
const BYTES_MAX: u64 = 4 << 20;

/// The text of a file of at most [`BYTES_MAX`] bytes that is no device.
pub(crate) fn read(path: &Path) -> Result<String, Error> {
    let kind = fs::metadata(path)?.file_type();
    if kind.is_block_device() || kind.is_char_device() {
        return Err(Error::new(ErrorKind::InvalidInput, "it is a device, not a text"));
    }
    let mut text = String::new();
    let bytes = File::open(path)?.take(BYTES_MAX + 1).read_to_string(&mut text)?;
    if bytes as u64 > BYTES_MAX {
        let why = format!("it is longer than the {} MiB of any such text", BYTES_MAX >> 20);
        return Err(Error::new(ErrorKind::InvalidInput, why));
    }
    Ok(text)
}

/// Loads a model as [`Model::load`] does, but not from a device or a file too long for a model.
pub fn load_model(name: &str) -> Result<Model, ModelError> {
    let path = Path::new(name);
    if !name.contains('/') && path.extension().is_none_or(|extension| extension != "toml") {
        return Model::load(name);
    }
    let unreadable = |error: Error| ModelError {
        file: name.to_owned(),
        line: None,
        parameter: None,
        problem: Problem::Unreadable(error.to_string()),
    };
    Model::parse(name, &read(path).map_err(unreadable)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_short_text_is_not_read_whole() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image.toml");
        File::create(&image).unwrap().set_len(1 << 40).unwrap();
        for (name, why) in [(image.to_str().unwrap(), "longer than the 4 MiB"), ("/dev/zero", "is a device")]
        {
            let error = load_model(name).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(why), "{error}");
            let error = crate::plan::Plan::read(Path::new(name)).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(why), "{error}");
        }
        assert_eq!(load_model("st31000333as").unwrap().name, "st31000333as");
        let written = folder.path().join("own.toml");
        let built_in = concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies/models/st31000333as.toml");
        fs::copy(built_in, &written).unwrap();
        let name = written.to_str().unwrap();
        assert_eq!(load_model(name).unwrap().parameters, Model::load(name).unwrap().parameters);
    }
}
