rule eicar_test_file
{
    meta:
        description = "The test file of EICAR, which every scanner calls malware and which does nothing"
        reference = "https://www.eicar.org/download-anti-malware-testfile/"
    strings:
        $signature = "X5O!P%@AP[4\\PZX54(P^)7CC)7}$EICAR-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*"
    condition:
        // By its definition the file begins with these 68 bytes, and has at most 128; a page that quotes them is no such file.
        $signature at 0 and filesize <= 128
}
