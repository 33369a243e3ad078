//! `safetensors` 0.8 on a big-endian machine: the format is little-endian.

use dlbridge_sealed::safetensors_0_8::Archive;

#[test]
fn elements_wider_than_a_byte_are_refused() {
    let header = br#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"y":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}  "#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    file.extend([0, 0, 128, 63, 1, 2, 3, 4]);
    let file = Archive::new(file).expect("a file");
    let refused = file.tensor("x").map(drop).expect_err("another byte order").to_string();
    let expected =
        "safetensors: expected little-endian elements, found float32 of a big-endian machine";
    assert_eq!(refused, expected);
    assert_eq!(file.tensor("y").expect("bytes").as_slice::<u8>(), Ok(&[1, 2, 3, 4][..]));
}
